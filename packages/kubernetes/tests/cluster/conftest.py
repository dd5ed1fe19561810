"""The clusters that tests of Kubernetes use."""

from packages.kubernetes.tests.kube.cluster import kube_cluster, kube_namespace  # noqa: F401 - fixtures
from packages.kubernetes.tests.kube.real import kubelet_cluster, kubelet_namespace, real_cluster, real_namespace  # noqa: F401 - fixtures
