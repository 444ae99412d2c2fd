// SPDX-License-Identifier: Apache-2.0

// Package nodepods watches the pods of one node with a client-go informer. A process needs only one
// informer, however many of its parts follow the pods.
//
// # Goals
//
// Little memory: only the node's pods are requested (field selector spec.nodeName), only what
// decides about traffic and repair is decoded ([Object]), and of that a bounded amount is kept for
// each pod. Of the types of Kubernetes' API, only the metadata's are linked.
//
// Promptness: after an absence of the API server, an informer hears of changes within seconds
// ([NewSteadyInformer]).
//
// # Non-goals
//
// It decides nothing about a pod: package repair/controller and the programs do that.
package nodepods
