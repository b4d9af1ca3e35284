"""What the operator's command line takes, and the one line that each mistake gets."""

import pytest
from trimtab_operator.main import main, read_settings


def test_what_is_not_said_has_its_default():
    settings = read_settings(["--netmon-image=netmon:1"])
    assert (settings.netmon_image, settings.num_workers, settings.port) == ("netmon:1", 8, 8080)
    assert settings.watched_namespace is None
    assert settings.most_job_series == 1000
    assert (settings.status_interval, settings.requests_per_second) == (60, 300)


def test_the_monitors_resources_are_what_was_said():
    given = ["--netmon-image=netmon:1", '--netmon-resources={"limits": {"cpu": 1, "memory": "1Gi"}}']
    assert read_settings(given).netmon_resources == {"limits": {"cpu": 1, "memory": "1Gi"}}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "--netmon-image: is missing; see `trimtab-operator --help`"),
        (["--netmon-image=a", "extra"], "'extra': is one argument too many; see `trimtab-operator --help`"),
        (["--netmon-image=a", "--workers=0"], "--workers: '0': write a whole number from 1 to 1000"),
        (["--netmon-image=a", "--port", "-5"], "--port: '-5': write a whole number from 0 to 65535"),
        (["--netmon-image=a", "--port=http"], "--port: 'http': write a whole number from 0 to 65535"),
        (
            ["--nope"],
            "--nope: is no flag of `trimtab-operator`; choose from --namespace, --watch-namespace, "
            "--netmon-image, --netmon-resources, --netmon-pull-policy, --netmon-pull-secrets, --scraper-namespace, "
            "--workers, --port, --most-job-series, --status-interval, --requests-per-second",
        ),
        *(
            (
                ["--netmon-image=a", "--netmon-resources", wrong],
                f"--netmon-resources: '{wrong}': "
                'write JSON such as {"requests": {"cpu": "50m"}, "limits": {"memory": "256Mi"}}',
            )
            for wrong in ("cpu=1", "[]", '{"request": {}}', '{"limits": {"cpu": []}}')
        ),
        (
            ["--netmon-image=a", "--netmon-pull-policy=always"],
            "--netmon-pull-policy: 'always': write one of Always, IfNotPresent, Never",
        ),
        (
            ["--netmon-image=a", "--netmon-pull-secrets=a,"],
            "--netmon-pull-secrets: 'a,': is no list of Secrets; write their names with commas between, such as a,b",
        ),
        (["--netmon-image=a", "--worker=2"], "--worker: is no flag of `trimtab-operator`; did you mean --workers?"),
    ],
)
def test_a_mistake_is_one_line(arguments, line, capsys, monkeypatch):
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"trimtab-operator: {line}\n"
    monkeypatch.setattr("sys.argv", ["trimtab-operator", *arguments])
    assert main() == 2
    assert capsys.readouterr().err == f"trimtab-operator: {line}\n"
