// SPDX-License-Identifier: Apache-2.0

// Command kubernetes is the programs of a Kubernetes cluster in one file: etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
// kubelet and kube-proxy, unmodified, at the versions of this module. The first argument says which, or the name by which it is called:
//
//	kubernetes kube-apiserver --help
//	ln -s kubernetes etcd && ./etcd --version
//
// # Goals
//
// One build and one link of what the programs share, which is most of them: a third of the time and a sixth of the size of six programs.
//
// # Non-goals
//
// kubectl: the tests use client-go. The module is apart from that of the tests, as Kubernetes decides the versions of everything it imports.
package main
