from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_UNSPECIFIED: _ClassVar[State]
    STATE_STARTING: _ClassVar[State]
    STATE_RUNNING: _ClassVar[State]
    STATE_SUCCEEDED: _ClassVar[State]
    STATE_FAILED: _ClassVar[State]
STATE_UNSPECIFIED: State
STATE_STARTING: State
STATE_RUNNING: State
STATE_SUCCEEDED: State
STATE_FAILED: State

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchStatusRequest(_message.Message):
    __slots__ = ("interval_seconds",)
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    interval_seconds: float
    def __init__(self, interval_seconds: _Optional[float] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("job", "state", "message", "num_ranks", "step", "loss", "step_seconds", "gain", "plan", "network", "taken_at_unix_seconds", "checkpoint", "checkpoint_problem")
    JOB_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NUM_RANKS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GAIN_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    TAKEN_AT_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    job: str
    state: State
    message: str
    num_ranks: int
    step: int
    loss: float
    step_seconds: float
    gain: float
    plan: Plan
    network: Network
    taken_at_unix_seconds: float
    checkpoint: Checkpoint
    checkpoint_problem: str
    def __init__(self, job: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ..., message: _Optional[str] = ..., num_ranks: _Optional[int] = ..., step: _Optional[int] = ..., loss: _Optional[float] = ..., step_seconds: _Optional[float] = ..., gain: _Optional[float] = ..., plan: _Optional[_Union[Plan, _Mapping]] = ..., network: _Optional[_Union[Network, _Mapping]] = ..., taken_at_unix_seconds: _Optional[float] = ..., checkpoint: _Optional[_Union[Checkpoint, _Mapping]] = ..., checkpoint_problem: _Optional[str] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("step", "age_seconds", "bytes", "seconds")
    STEP_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    step: int
    age_seconds: float
    bytes: int
    seconds: float
    def __init__(self, step: _Optional[int] = ..., age_seconds: _Optional[float] = ..., bytes: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("version", "name", "ratio", "collective", "sparsifier", "num_buffers", "reason", "adopted_at_step")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVE_FIELD_NUMBER: _ClassVar[int]
    SPARSIFIER_FIELD_NUMBER: _ClassVar[int]
    NUM_BUFFERS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ADOPTED_AT_STEP_FIELD_NUMBER: _ClassVar[int]
    version: int
    name: str
    ratio: float
    collective: str
    sparsifier: str
    num_buffers: int
    reason: str
    adopted_at_step: int
    def __init__(self, version: _Optional[int] = ..., name: _Optional[str] = ..., ratio: _Optional[float] = ..., collective: _Optional[str] = ..., sparsifier: _Optional[str] = ..., num_buffers: _Optional[int] = ..., reason: _Optional[str] = ..., adopted_at_step: _Optional[int] = ...) -> None: ...

class Network(_message.Message):
    __slots__ = ("revision", "latency_seconds", "bandwidth_bytes_per_second", "stale", "bandwidth_age_seconds", "bandwidth_lower_bound")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    LATENCY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_LOWER_BOUND_FIELD_NUMBER: _ClassVar[int]
    revision: int
    latency_seconds: float
    bandwidth_bytes_per_second: float
    stale: bool
    bandwidth_age_seconds: float
    bandwidth_lower_bound: bool
    def __init__(self, revision: _Optional[int] = ..., latency_seconds: _Optional[float] = ..., bandwidth_bytes_per_second: _Optional[float] = ..., stale: _Optional[bool] = ..., bandwidth_age_seconds: _Optional[float] = ..., bandwidth_lower_bound: _Optional[bool] = ...) -> None: ...
