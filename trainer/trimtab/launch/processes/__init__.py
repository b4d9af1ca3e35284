"""Processes of one host: how they are started, heard, ended, and never left behind."""
