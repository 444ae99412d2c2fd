// SPDX-License-Identifier: Apache-2.0

// Package nodepods is the watch of one node's pods: a client-go informer, of which a process needs
// only one, however many of its parts follow the pods.
//
// # Goals
//
// Little memory: only the node's pods are requested (field selector spec.nodeName), only what
// decides about traffic and repair is decoded ([Object]), and of that a bounded amount is kept for
// each pod. Of the types of Kubernetes' API, only the metadata's are linked.
//
// # Non-goals
//
// Nothing is decided about a pod here: package repair/controller and the programs do that.
package nodepods
