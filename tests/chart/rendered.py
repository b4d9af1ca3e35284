"""Parts of what the chart renders."""

from __future__ import annotations


def of_kind(objects, kind):
    return [each for each in objects if each["kind"] == kind]


def one(objects, kind, name):
    (found,) = [each for each in of_kind(objects, kind) if each["metadata"]["name"] == name]
    return found


def operator_container(objects):
    return one(objects, "Deployment", "trimtab")["spec"]["template"]["spec"]["containers"][0]


def pods(objects):
    templates = [each["spec"]["template"]["spec"] for each in of_kind(objects, "Deployment")]
    return templates + [each["spec"] for each in of_kind(objects, "Pod")]
