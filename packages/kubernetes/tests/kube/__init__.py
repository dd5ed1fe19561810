"""A Kubernetes cluster of the tests' own: an API server that is strict about objects, and a node that runs pods with runc.

`cluster.KubeCluster` starts it as a process; `real.RealCluster` starts a kube-apiserver with the same node.
"""
