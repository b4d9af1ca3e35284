"""Names that the code has given up: each stands beside the word of docs/reference/glossary.md for it."""

from __future__ import annotations

import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: The old name of a thing, and its name. A name that means something else by now leaves the table.
RENAMED = """
Adopt SwitchPlan
Alarm GuardRailViolation
AmongRanks RankOps
Arena FlatBuffers
Banned ExcludedPlans
ByHand ManualOptimizer
Entrance Listener
ExchangeState ExchangeCheckpoint
Experiments Exploration
Fallback DenseFallback
Fingerprint WeightFingerprint
Flight PendingExchange
Flights PendingExchanges
ForwardWaits ForwardSyncHooks
GIVE_WAY_SECONDS GIL_SWITCH_INTERVAL_SECONDS
GiveUp FailJob
HandOut GradientWriter
HostCard HostEndpoint
Joined JobConnection
LateGradient LazyGradient
LateParameters LazyParameters
LocalUpdates LocalSgd
NonsenseError MalformedReplyError
NotNowError ProbeDeferredError
OptimizerGate OptimizerStepper
OuterStep OuterOptimizer
OverlappedUpdates OverlappedLocalSgd
OwedStep PendingStep
Participation ParameterUsage
PhaseClock PhaseTimer
RefusedPods PodCreationErrors
Resuming ResumeState
RunKeeper RunLifecycle
STEPS_AHEAD ANNOUNCE_STEPS_BEFORE_SYNC
StandIns ProxyParameters
StepVote StepFlags
Stepping StepLifecycle
StoppingError ShuttingDownError
Stopwatch LapTimer
StrangerError AuthenticationError
Strict ApiModel
Subset Subgroup
Switchboard HandshakeServer
TRICKLE BACKGROUND_REFILL_SHARE
TrainerMessage Rank0Status
Velocity MomentumCorrection
WENT_WELL BACKOFF_RESET_AFTER
WatchValue Broadcast
allows_answer allows_recheck
allows_background allows_periodic
arena flat_buffers
as_arrived resolve
banned excluded_plans
batch_wanted on_next_batch
bears_delay tolerates_staleness
begin_step finalize_gradients
beside_values overhead_cost
borrow_grad alias_grad
bring_in flush
carrier consensus_send_index
check_card check_endpoint
cuts_union reselects
doubted_since suspect_since
earlier_pods stale_pods
end_step on_step_end
ensure_children sync_children
entrance listener
epoch_ended on_epoch_end
filled_pairs sparse_or_dense
find_loss find_root_failure
flight pending_exchange
flights pending_exchanges
foretold predicted
further_links extra_links
half_gain_ratio prior_half_gain_ratio
hand_out write_gradients
hand_out_late write_deferred
heard_of update_frequency
hears_ahead accepts_early_announcement
in_the_way name_conflict
is_doubted is_suspect
is_late is_deferred
is_owed is_pending
is_superseded is_outdated
join_again open_extra_links
keep_aside keep_frozen_residual
leave_out skip_step
look_again request_decision
loop_steps steps_per_epoch
makes_trials can_run_trials
may_choose_more allow_local_sgd
may_lend can_alias
meeting_point rendezvous_endpoint
more_passes extra_passes
moved_before_frozen move_frozen_residual
obstacle blocking_reason
owed pending_step
put_aside stash
put_off defer
reassure revalidate
selects_itself has_builtin_sparsifier
show_late install_placeholder
shown_with table_variants
stale_steps staleness_steps
stand_in proxy
stopwatch timer
supposing slowdown_at
turn_of only_parameters_of
unconfirmed pending_confirmation
why_stepped_whole partial_step_unsupported_reason
"""


def test_no_name_in_the_product_is_one_that_was_given_up():
    renamed = dict(line.split() for line in RENAMED.split("\n") if line)
    files = [path for part in ("proto", "netmon", "operator", "trainer") for path in (ROOT / part).rglob("*.py")]
    assert len(files) > 400
    used = []
    for path in files:
        with path.open(encoding="utf-8") as source:
            for token in tokenize.generate_tokens(source.readline):
                if token.type == tokenize.NAME and token.string in renamed and "_pb2" not in path.name:
                    where = f"{path.relative_to(ROOT)}:{token.start[0]}"
                    used.append(f"{where}: {token.string} is called {renamed[token.string]}")
    assert used == []
