// SPDX-License-Identifier: Apache-2.0

// Command kubernetes combines the programs of a Kubernetes cluster in one file: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kube-proxy, unmodified, at
// the versions of this module. The first argument, or the name of the file, chooses the program:
//
//	kubernetes kube-apiserver --help
//	ln -s kubernetes etcd && ./etcd --version
//
// # Goals
//
// The programs share most of their code, so it is built and linked once: a third of the time and a
// sixth of the size of six programs.
//
// # Non-goals
//
// kubectl: the tests use client-go. The module is separate from the tests' module, because
// Kubernetes dictates the versions of all its imports.
package main
