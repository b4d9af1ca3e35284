from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Method(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    METHOD_UNSPECIFIED: _ClassVar[Method]
    METHOD_UDP_ECHO: _ClassVar[Method]
    METHOD_IPERF3: _ClassVar[Method]
    METHOD_IPERF3_SHARED: _ClassVar[Method]
    METHOD_NATIVE: _ClassVar[Method]
    METHOD_NATIVE_SHARED: _ClassVar[Method]

class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENGINE_UNSPECIFIED: _ClassVar[Engine]
    ENGINE_IPERF3: _ClassVar[Engine]
    ENGINE_NATIVE: _ClassVar[Engine]
METHOD_UNSPECIFIED: Method
METHOD_UDP_ECHO: Method
METHOD_IPERF3: Method
METHOD_IPERF3_SHARED: Method
METHOD_NATIVE: Method
METHOD_NATIVE_SHARED: Method
ENGINE_UNSPECIFIED: Engine
ENGINE_IPERF3: Engine
ENGINE_NATIVE: Engine

class GetNetworkStateRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchNetworkStateRequest(_message.Message):
    __slots__ = ("accepts_partial",)
    ACCEPTS_PARTIAL_FIELD_NUMBER: _ClassVar[int]
    accepts_partial: bool
    def __init__(self, accepts_partial: _Optional[bool] = ...) -> None: ...

class MeasureNowRequest(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class NetworkState(_message.Message):
    __slots__ = ("revision", "published_at_unix_seconds", "num_workers", "links", "summary", "measured", "not_measured", "partial", "seconds_since_last", "problem")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NUM_WORKERS_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    NOT_MEASURED_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    SECONDS_SINCE_LAST_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    revision: int
    published_at_unix_seconds: float
    num_workers: int
    links: _containers.RepeatedCompositeFieldContainer[Link]
    summary: Summary
    measured: _containers.RepeatedCompositeFieldContainer[LinkName]
    not_measured: _containers.RepeatedCompositeFieldContainer[LinkName]
    partial: bool
    seconds_since_last: float
    problem: str
    def __init__(self, revision: _Optional[int] = ..., published_at_unix_seconds: _Optional[float] = ..., num_workers: _Optional[int] = ..., links: _Optional[_Iterable[_Union[Link, _Mapping]]] = ..., summary: _Optional[_Union[Summary, _Mapping]] = ..., measured: _Optional[_Iterable[_Union[LinkName, _Mapping]]] = ..., not_measured: _Optional[_Iterable[_Union[LinkName, _Mapping]]] = ..., partial: _Optional[bool] = ..., seconds_since_last: _Optional[float] = ..., problem: _Optional[str] = ...) -> None: ...

class LinkName(_message.Message):
    __slots__ = ("source", "target")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    source: int
    target: int
    def __init__(self, source: _Optional[int] = ..., target: _Optional[int] = ...) -> None: ...

class Summary(_message.Message):
    __slots__ = ("latency_seconds", "bandwidth_bytes_per_second", "jitter_seconds", "stale", "latency_age_seconds", "bandwidth_age_seconds", "bandwidth_method", "bandwidth_lower_bound")
    LATENCY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    JITTER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    LATENCY_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_METHOD_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_LOWER_BOUND_FIELD_NUMBER: _ClassVar[int]
    latency_seconds: float
    bandwidth_bytes_per_second: float
    jitter_seconds: float
    stale: bool
    latency_age_seconds: float
    bandwidth_age_seconds: float
    bandwidth_method: Method
    bandwidth_lower_bound: bool
    def __init__(self, latency_seconds: _Optional[float] = ..., bandwidth_bytes_per_second: _Optional[float] = ..., jitter_seconds: _Optional[float] = ..., stale: _Optional[bool] = ..., latency_age_seconds: _Optional[float] = ..., bandwidth_age_seconds: _Optional[float] = ..., bandwidth_method: _Optional[_Union[Method, str]] = ..., bandwidth_lower_bound: _Optional[bool] = ...) -> None: ...

class Link(_message.Message):
    __slots__ = ("source", "target", "latency", "bandwidth", "jitter_seconds", "queueing_seconds", "silent")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    LATENCY_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_FIELD_NUMBER: _ClassVar[int]
    JITTER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    QUEUEING_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    source: int
    target: int
    latency: Measurement
    bandwidth: Measurement
    jitter_seconds: float
    queueing_seconds: float
    silent: bool
    def __init__(self, source: _Optional[int] = ..., target: _Optional[int] = ..., latency: _Optional[_Union[Measurement, _Mapping]] = ..., bandwidth: _Optional[_Union[Measurement, _Mapping]] = ..., jitter_seconds: _Optional[float] = ..., queueing_seconds: _Optional[float] = ..., silent: _Optional[bool] = ...) -> None: ...

class Measurement(_message.Message):
    __slots__ = ("value", "method", "measured_at_unix_seconds", "stale", "age_seconds", "lower_bound")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    MEASURED_AT_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LOWER_BOUND_FIELD_NUMBER: _ClassVar[int]
    value: float
    method: Method
    measured_at_unix_seconds: float
    stale: bool
    age_seconds: float
    lower_bound: bool
    def __init__(self, value: _Optional[float] = ..., method: _Optional[_Union[Method, str]] = ..., measured_at_unix_seconds: _Optional[float] = ..., stale: _Optional[bool] = ..., age_seconds: _Optional[float] = ..., lower_bound: _Optional[bool] = ...) -> None: ...

class WatchLinksRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LinkTable(_message.Message):
    __slots__ = ("source", "links", "received_bytes_per_second")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    source: int
    links: _containers.RepeatedCompositeFieldContainer[Link]
    received_bytes_per_second: float
    def __init__(self, source: _Optional[int] = ..., links: _Optional[_Iterable[_Union[Link, _Mapping]]] = ..., received_bytes_per_second: _Optional[float] = ...) -> None: ...

class TestBandwidthRequest(_message.Message):
    __slots__ = ("target", "expected_bytes_per_second")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    target: int
    expected_bytes_per_second: float
    def __init__(self, target: _Optional[int] = ..., expected_bytes_per_second: _Optional[float] = ...) -> None: ...

class TestBandwidthResponse(_message.Message):
    __slots__ = ("bandwidth_bytes_per_second", "method", "duration_seconds", "lower_bound", "sent_bytes")
    BANDWIDTH_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    DURATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LOWER_BOUND_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    bandwidth_bytes_per_second: float
    method: Method
    duration_seconds: float
    lower_bound: bool
    sent_bytes: int
    def __init__(self, bandwidth_bytes_per_second: _Optional[float] = ..., method: _Optional[_Union[Method, str]] = ..., duration_seconds: _Optional[float] = ..., lower_bound: _Optional[bool] = ..., sent_bytes: _Optional[int] = ...) -> None: ...

class ReceiveTestRequest(_message.Message):
    __slots__ = ("source", "limit_seconds", "engines")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    source: int
    limit_seconds: float
    engines: _containers.RepeatedScalarFieldContainer[Engine]
    def __init__(self, source: _Optional[int] = ..., limit_seconds: _Optional[float] = ..., engines: _Optional[_Iterable[_Union[Engine, str]]] = ...) -> None: ...

class ReceiveTestUpdate(_message.Message):
    __slots__ = ("monotonic_seconds", "received_bytes", "test_bytes", "engine", "port", "ticket", "busiest_thread_seconds")
    MONOTONIC_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    TEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    BUSIEST_THREAD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    monotonic_seconds: float
    received_bytes: int
    test_bytes: int
    engine: Engine
    port: int
    ticket: bytes
    busiest_thread_seconds: float
    def __init__(self, monotonic_seconds: _Optional[float] = ..., received_bytes: _Optional[int] = ..., test_bytes: _Optional[int] = ..., engine: _Optional[_Union[Engine, str]] = ..., port: _Optional[int] = ..., ticket: _Optional[bytes] = ..., busiest_thread_seconds: _Optional[float] = ...) -> None: ...
