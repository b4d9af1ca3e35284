"""How gRPC between Trimtab's processes behaves: a peer that vanished is noticed, and found again, within seconds."""

from __future__ import annotations

CLIENT_OPTIONS = (
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 4000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)
"""Options of every channel."""

SERVER_OPTIONS = (
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
)
"""Options of every server: it bears the clients' pings, and a busy port is an error and never shared."""
