"""SAFusion: buffers of gradients that are sparse before they are fused."""
