"""The fields that Kubernetes knows are those of its client."""

import pytest
from kubernetes.client import V1Container, V1EnvVar, V1ObjectMeta, V1PodSpec, V1PodTemplateSpec, V1Volume
from trimtab_api.trainingjob import template_schema as known


@pytest.mark.parametrize(
    ("fields", "model"),
    [
        (known.METADATA, V1ObjectMeta),
        (known.POD_TEMPLATE, V1PodTemplateSpec),
        (known.POD, V1PodSpec),
        (known.CONTAINER, V1Container),
        (known.VARIABLE, V1EnvVar),
        (known.VOLUME, V1Volume),
    ],
)
def test_they_are_the_clients(fields, model):
    assert fields == set(model.attribute_map.values())
