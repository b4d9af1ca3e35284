"""Messages to people: their form, and which ranks' are printed."""

import logging.config
import sys

from trimtab.process.messages import LOGGER, for_rank


def test_a_message_is_one_line_on_stderr_after_the_programs_name(capsys):
    LOGGER.error("100% of it failed")
    assert capsys.readouterr() == ("", "trimtab: 100% of it failed\n")


def test_information_is_printed_by_rank_0_alone_and_a_warning_by_every_rank(capsys):
    for rank in range(2):
        for_rank(rank).info(f"information of rank {rank}")
        for_rank(rank).warning(f"warning of rank {rank}")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"trimtab: {said}" for said in ("information of rank 0", "warning of rank 0", "warning of rank 1")]


def test_a_script_that_logs_everything_prints_no_message_twice(capsys):
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger().addHandler(handler)
    try:
        LOGGER.warning("once")
    finally:
        logging.getLogger().removeHandler(handler)
    assert capsys.readouterr().err == "trimtab: once\n"


def test_a_script_that_configures_its_logging_silences_no_message(capsys):
    loggers = [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    before = [each.disabled for each in loggers]
    logging.config.dictConfig({"version": 1})  # which disables the loggers that there are, by default
    LOGGER.warning("still there")
    for each, was_disabled in zip(loggers, before, strict=True):  # other tests of this process read them
        each.disabled = was_disabled
    assert capsys.readouterr().err == "trimtab: still there\n"


def test_what_cannot_be_printed_ends_nothing(monkeypatch):
    class Full:
        def write(self, text):
            raise OSError("no space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    LOGGER.warning("lost")
