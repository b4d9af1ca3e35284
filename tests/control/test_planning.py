"""Planners are asked when a decision is due, for what is known by then, and as seldom as will do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.catalogue_additions import forget_additions
from simulator import GIGABIT
from trimtab.control.cost_model.predictor import Predictor
from trimtab.control.factory import make_controller
from trimtab.control.planning import FusionPlanning
from trimtab.control.search.space import Space
from trimtab.control.types import ControllerSettings, KeepGoing, ModelFacts, StepReport, SwitchPlan
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.plan.profile import BucketTimes, ModuleTimes, Profile
from trimtab_api.catalogue import Option, Row, planners, schedules, whole_number
from trimtab_api.errors import UserError
from trimtab_api.netmon.view import NetworkView

FACTS = ModelFacts(4_000_000, (1_000_000, 1_000_000, 2_000_000), 4)
RECORDING = "recording:at=1000000:selection=ahead"
NETWORK = 1e-3, 8e-9
SLOW = 1e-3, 2.4e-8
asked: list[tuple] = []


def recording(profile, tensor_sizes, costs, *, at):
    """Cuts where it is told to, and remembers what it was asked."""
    asked.append((profile, tensor_sizes, costs))
    return (0, at)


@pytest.fixture
def planner():
    """The catalogue with a planner more, which remembers."""
    asked.clear()
    planners.add(
        Row("recording", "for tests", f"{__name__}:recording", options=(Option("at", whole_number(1), "where"),))
    )
    yield
    forget_additions()


@pytest.fixture
def planning(planner):
    return FusionPlanning(Predictor(FACTS), FACTS, ratios=(0.1, 0.01, 0.001))


def profile():
    plan = Plan(0.01, "all-gather")
    modules, buckets = (ModuleTimes("all", 0, 4_000_000, 0.01, 0.03),), (BucketTimes(0.01, 0.1),)
    return Profile(5, 3, plan, 0.02, (0.01, 0.01, 0.01), modules, buckets, 1.0, 2.0, 3.0)


def test_a_planner_gets_sizes_options_and_what_buffers_cost_under_the_plan(planning):
    planning.renew(*NETWORK)
    plan = planning.plan(0.01, "all-gather", "topk", RECORDING)
    assert plan == Plan(0.01, "all-gather", "topk", FusionPlan((0, 1_000_000), planner=RECORDING))
    ((seen_profile, sizes, costs),) = asked
    assert (seen_profile, sizes) == (None, FACTS.tensor_sizes)
    whole = Predictor(FACTS).sync_seconds(Plan(0.01, "all-gather"), *NETWORK)
    assert 0 < costs.exchange(1) < costs.exchange(1_000_000) < whole
    none, once, twice = (costs.compress(size) for size in (0, 1_000_000, 2_000_000))
    assert twice - once == pytest.approx(once - none), "something for the buffer, the rest for its elements"
    assert none > 0


@pytest.mark.parametrize("collective", ["all-gather", "artopk-star-ring", "spardl"])
def test_planners_are_charged_what_the_predictor_charges_for_a_further_buffer(planning, collective):
    planning.renew(*NETWORK)
    planning.plan(0.01, collective, "topk", RECORDING)
    ((_, _, costs),) = asked
    predictor = Predictor(FACTS)
    cut = Plan(0.01, collective, "topk", FusionPlan((0, 1_000_000, 2_000_000), planner=RECORDING))
    whole = replace(cut, fusion=FusionPlan((0,), planner=RECORDING))
    further = costs.exchange(1_000_000) + costs.exchange(1_000_000) + costs.exchange(2_000_000)
    further -= costs.exchange(FACTS.num_elements)
    predicted = predictor.sync_seconds(cut, *NETWORK) - predictor.sync_seconds(whole, *NETWORK)
    assert further == pytest.approx(predicted, rel=1e-6)


def test_it_is_asked_once_for_the_ratios_around_each_of_a_few(planning):
    made = {planning.plan(ratio, "all-gather", "tracked", RECORDING).ratio for ratio in (0.02, 0.012, 0.01, 0.009)}
    assert made == {0.02, 0.012, 0.01, 0.009}
    assert len(asked) == 1
    planning.plan(0.09, "all-gather", "tracked", RECORDING)
    planning.plan(0.01, "artopk-star-ring", "tracked", RECORDING)
    assert len(asked) == 3


def test_it_is_asked_anew_once_more_is_known(planning):
    planning.plan(0.01, "all-gather", "tracked", RECORDING)
    planning.renew(10 * NETWORK[0], NETWORK[1])
    planning.plan(0.01, "all-gather", "tracked", RECORDING)
    (*_, before), (*_, after) = asked
    assert after.exchange(1000) > before.exchange(1000)


def test_dense_sends_all_and_compresses_nothing(planning):
    assert planning.dense(ControllerSettings(fusions=(RECORDING,))) == Plan(
        1.0, "dense-ring", fusion=FusionPlan((0, 1_000_000), planner=RECORDING)
    )
    assert asked[0][2].compress(1_000_000) == 0


def test_one_rank_has_no_exchange(planner):
    alone = ModelFacts(10, (10,), 1)
    assert FusionPlanning(Predictor(alone), alone, (0.01,)).dense(ControllerSettings()).fusion.cuts == (0,)


def test_training_begins_dense_in_the_buffers_of_the_first_planner(planner):
    plan = make_controller(ControllerSettings(fusions=(RECORDING, "single")), FACTS).plan
    assert plan == Plan(1.0, "dense-ring", fusion=FusionPlan((0, 1_000_000), planner=RECORDING))


def test_dense_is_sent_by_the_first_schedule():
    assert make_controller(ControllerSettings(schedules=("after-backward", "wait-free")), FACTS).plan.schedule == (
        "after-backward"
    )


def test_a_planner_that_cannot_plan_the_model_is_refused_before_training():
    with pytest.raises(UserError, match="fusion"):
        make_controller(ControllerSettings(fusions=("single", "cuts:at=4000000000")), FACTS)


def test_a_static_plan_is_cut_by_the_planner_that_it_names(planner):
    static = Plan.parse(f"0.01/all-gather/sparsifier=topk/fusion={RECORDING}")
    plan = make_controller(ControllerSettings("static", static), FACTS).plan
    assert plan == Plan(0.01, "all-gather", "topk", FusionPlan((0, 1_000_000), planner=RECORDING))


def test_the_controller_asks_with_the_profile_and_chooses_among_all_planners_buffers(planner):
    settings = ControllerSettings(fusions=("single", RECORDING))
    controller = make_controller(settings, FACTS)
    controller.observe_network(NetworkView(1, 1e-3, 0.02 * GIGABIT), 0.0)
    controller.next_action(0.0, 100)
    assert {seen[0] for seen in asked} == {None}
    asked.clear()
    controller.observe_profile(profile(), 1.0)
    controller.next_action(1.0, 100)
    assert [line["trigger"] for line in controller.log.drain() if line["record"] == "decision"][-1] == "profile"
    assert {seen[0] for seen in asked} == {profile()}


def test_the_papers_planners_are_searched_where_a_job_names_them_and_the_decision_names_the_one_taken():
    named = ("single", "safusion", "none", "mg-wfbp", "omgs", "cupcake", "autotuned", "optimal")
    facts = ModelFacts(4_000_000, tuple([100_000] * 40), 4)
    settings = ControllerSettings(fusions=named, collectives=("all-gather",), min_ratio=0.01, max_ratio=0.02)
    controller = make_controller(settings, facts)
    controller.observe_network(NetworkView(1, 1e-3, 0.2 * GIGABIT), 0.0)
    controller.next_action(0.0, 100)
    backward = (0.03 / 40,) * 40
    controller.observe_profile(Profile(5, 3, controller.plan, 0.02, backward, (), (), None, None, None), 1.0)
    controller.next_action(1.0, 100)
    decision = [line for line in controller.log.drain() if line["record"] == "decision"][-1]
    adopted = decision["adopted"]["fusion"]
    assert adopted["planner"] in named[1:]
    assert len(adopted["cuts"]) > 1
    assert f"fusion={adopted['planner']}" in decision["adopted"]["name"]
    seen = {name.partition("fusion=")[2] for name in (plan["plan"] for plan in decision["pareto"])}
    assert len(seen) > 1


# Schedules that are planned -----------------------------------------------------------------------------


def profiled(lead=0.02, loss=1.0):
    """Of a model whose gradient takes longer to cross the network of `SLOW` than to compute."""
    tensors = [(0, 1_000_000), (1_000_000, 2_000_000), (2_000_000, 4_000_000)]
    modules = tuple(
        ModuleTimes(f"m{i}", start, stop, 0.03, 0.06) for i, (start, stop) in reversed(list(enumerate(tensors)))
    )
    plan = Plan.parse("dense")
    return Profile(7, 5, plan, lead, (0.06, 0.06, 0.06), modules, (BucketTimes(0, 0.1),), loss, 1e-4, 1e-3, 0.01)


def static(schedule, fusion="equal:buffers=8"):
    plan = Plan.parse(f"dense/fusion={fusion}/schedule={schedule}")
    controller = make_controller(ControllerSettings("static", plan), FACTS)
    controller.observe_network(NetworkView(1, SLOW[0], 1 / SLOW[1]), 0.0)
    exchange = Predictor(FACTS).sync_seconds(controller.plan, *SLOW)
    controller.observe_step(StepReport(0, controller.plan, 0.5, 0.27, 0.0, exchange, 1, 1, 1.0, 0.0, finite=True), 0.5)
    return controller


@pytest.mark.parametrize("schedule", ["deft", "priority", "us-byte"])
def test_a_static_plans_schedule_is_planned_once_steps_were_profiled(schedule):
    controller = static(schedule)
    first = controller.plan
    assert first.timetable is None
    assert controller.next_action(0.0, 100) == KeepGoing()
    controller.observe_profile(profiled(), 1.0)
    adopted = controller.next_action(1.0, 100)
    assert isinstance(adopted, SwitchPlan)
    assert adopted.plan.timetable is not None
    assert adopted.plan.name == first.name
    assert adopted.plan.version == 1
    (line,) = controller.log.drain()
    assert (line["trigger"], line["adopted"]["timetable"]) == ("profile", adopted.plan.timetable.to_json())
    assert controller.next_action(2.0, 100) == KeepGoing(), "it is asked once for each profile"


def test_it_is_planned_anew_only_where_that_saves_a_twentieth_of_the_time_to_target():
    controller = static("deft:merged=mean")
    controller.observe_profile(profiled(), 1.0)
    controller.next_action(1.0, 100)
    controller.observe_profile(replace(profiled(), tensor_backward_seconds=(0.061, 0.06, 0.059)), 2.0)
    assert controller.next_action(2.0, 100) == KeepGoing()
    controller.observe_network(NetworkView(2, SLOW[0], 10 / SLOW[1]), 3.0)
    controller.observe_network(NetworkView(3, SLOW[0], 10 / SLOW[1]), 30.0)
    controller.observe_profile(profiled(), 31.0)
    again = controller.next_action(31.0, 100)
    assert isinstance(again, SwitchPlan)
    assert again.plan.timetable.iterations_per_update == 1, "ten times the bandwidth, and nothing is merged"


def test_deft_sums_while_the_loss_falls_as_promised_and_delays_nothing_once_it_falls_short():
    controller = static("deft")
    promised = 0.01 * 1e-4
    adopted = []
    for number, fall in enumerate((None, 0.5 * promised, 0.05 * promised, 0.5 * promised)):
        told = replace(profiled(), step=100 + number, plan=controller.plan, loss_fall=fall)
        controller.observe_profile(told, 1.0 + number)
        action = controller.next_action(1.0 + number, 100)
        assert isinstance(action, SwitchPlan), number
        adopted.append((action.plan.timetable.delays, action.plan.timetable.averages))
    assert adopted == [(False, False), (True, False), (False, False), (True, False)]
    assert {line["trigger"] for line in controller.log.drain()} == {"profile"}


def test_where_a_delay_did_harm_deft_delays_nothing_any_more_after_a_restart_as_well():
    controller, promising = static("deft"), replace(profiled(), step=200, loss_fall=0.5 * 0.01 * 1e-4)
    harmed = replace(promising, delay_harmed_at=promising.learning_rate)
    delays = []
    for number, told in enumerate((promising, harmed, promising, promising, replace(promising, learning_rate=0.004))):
        if number == 3:
            restarted = static("deft")
            restarted.load_state_dict(controller.state_dict())
            controller = restarted
        controller.observe_profile(replace(told, plan=controller.plan), 1.0 + number)
        controller.next_action(1.0 + number, 100)
        delays.append(controller.plan.timetable.delays)
    assert delays == [True, False, False, False, True]


def steps(controller, count, seconds, exchange, begin):
    """The last action of so many training steps."""
    for number in range(begin, begin + count):
        controller.observe_step(
            StepReport(number, controller.plan, seconds, 0.27, 0.0, exchange, 1, 1, 1.0, 0.0, finite=True), number
        )
        action = controller.next_action(number, 100)
        if action != KeepGoing():
            return action
    return KeepGoing()


@pytest.mark.parametrize("schedule", ["priority", "us-byte"])
@pytest.mark.parametrize(("seconds", "is_worse"), [(0.7, True), (0.4, False)])
def test_parts_whose_steps_turn_out_longer_are_put_together_again_and_not_tried_once_more(schedule, seconds, is_worse):
    controller = static(schedule, fusion="single")
    exchange = Predictor(FACTS).sync_seconds(controller.plan, *SLOW)
    assert steps(controller, 5, 0.5, exchange, begin=1) == KeepGoing()
    controller.observe_profile(profiled(), 6.0)
    adopted = controller.next_action(6.0, 100)
    assert len(adopted.plan.fusion.cuts) > 1
    again = steps(controller, 15, seconds, exchange, begin=6)
    if is_worse:
        assert (again.plan.fusion.cuts, again.plan.schedule) == ((0,), schedule)
        num_parts = len(adopted.plan.fusion.cuts)
        assert f"took longer in {num_parts} parts than before them" in again.decision.reason
        assert adopted.decision.reason.endswith(f"in buffers: {num_parts}")
    else:
        assert again == KeepGoing()
    lines = controller.log.drain()
    decided = [line["trigger"] for line in lines if line["record"] == "decision"]
    assert decided == ["profile", "measured"] if is_worse else ["profile"]
    (measured,) = [line for line in lines if line["record"] == "measured"]
    assert measured["measured_step_seconds"] == pytest.approx(seconds)
    assert measured["measured_previous_step_seconds"] == pytest.approx(0.5)
    controller.observe_profile(replace(profiled(), step=30), 30.0)
    assert controller.next_action(30.0, 100) == KeepGoing()


def test_on_another_network_parts_are_tried_again():
    controller = static("priority", fusion="single")
    exchange = Predictor(FACTS).sync_seconds(controller.plan, *SLOW)
    steps(controller, 5, 0.5, exchange, begin=1)
    controller.observe_profile(profiled(), 6.0)
    controller.next_action(6.0, 100)
    assert steps(controller, 15, 0.7, exchange, begin=6).plan.fusion.cuts == (0,)
    for revision, now in ((2, 30.0), (3, 60.0)):
        controller.observe_network(NetworkView(revision, SLOW[0], 0.3 / SLOW[1]), now)
    controller.observe_profile(replace(profiled(), step=70), 70.0)
    assert len(controller.next_action(70.0, 100).plan.fusion.cuts) > 1


def test_static_plans_that_no_profile_changes_stay_and_log_nothing():
    controller = static("wait-free")
    controller.observe_profile(profiled(), 1.0)
    assert controller.next_action(1.0, 100) == KeepGoing()
    assert controller.log.drain() == []


def test_updates_are_delayed_only_where_the_user_names_a_schedule_that_does():
    space = Space.of(ControllerSettings())
    assert not any(schedules[values["schedule"]].delays_updates for values in space)


def test_a_schedule_that_merges_gradients_is_refused_beside_local_steps_which_send_none():
    with pytest.raises(UserError, match="schedule: 'deft': merges gradients of several steps"):
        Plan.parse("0.01/all-gather/schedule=deft/source=update:steps=4")
    with pytest.raises(UserError, match="schedules: 'deft': merges gradients of several steps"):
        ControllerSettings(schedules=("wait-free", "deft"), sources=("gradient", "update:steps=4"))


def test_updates_by_a_mean_are_charged_for_as_many_steps_as_they_merge(planning):
    predictor = Predictor(FACTS)
    predictor.observe_profile(profiled())
    planning = FusionPlanning(predictor, FACTS, (0.01,))
    planning.renew(*SLOW)
    dense = Plan.parse("dense")
    wait_free, deft, summed = (
        predictor.predict(planning.plan(1.0, dense.collective, "tracked", "equal:buffers=8", schedule), *SLOW)
        for schedule in ("wait-free", "deft:preserver=off", "deft:merged=sum:preserver=off")
    )
    merged = deft.plan.timetable.iterations_per_update
    assert merged > 1.2
    assert (wait_free.convergence_slowdown, deft.convergence_slowdown, summed.convergence_slowdown) == (
        1.0,
        merged,
        1.0,
    )
    assert summed.step_seconds == deft.step_seconds < wait_free.step_seconds


def test_a_step_of_a_round_of_local_steps_is_predicted_by_its_share_of_compression_and_of_the_exchange():
    predictor = Predictor(FACTS)
    rounds = Plan(0.01, "all-gather", source="update:steps=4")
    found = predictor.predict(rounds, *NETWORK)
    assert found.compress_seconds == pytest.approx(predictor.compress_times(rounds) / 4)
    assert found.sync_seconds == pytest.approx(predictor.sync_seconds(rounds, *NETWORK) / 4)
