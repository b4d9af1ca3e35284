"""From what autograd computes to flat buffers."""
