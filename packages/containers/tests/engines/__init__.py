import pytest

pytest.register_assert_rewrite("packages.containers.tests.engines.docker_cases")  # before anything imports it
