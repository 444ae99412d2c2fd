// SPDX-License-Identifier: Apache-2.0

// Package controller follows the pods of one node and their namespaces through client-go informers,
// tells the node's agent of ambient mode what changes, and annotates the pods with their status.
//
//	pods of the node ---(informer)--+
//	                                +--Next--> ambient.Change ----> agent
//	namespaces (metadata, informer)-+
//
//	annotation (PATCH pods/status) <--Annotate-- ambient.Status <-- agent
//
// The program with the informers need not be that of the agent, which links no client-go.
//
// # Goals
//
//   - Nothing is concluded from an incomplete view. Next tells nothing until all pods and
//     namespaces have been listed, and a pod only with its namespace. A namespace that the watch
//     does not know yet is asked for.
//   - A pod is known by its UID: another pod of the same name is news of one that is gone and of
//     one that is new. Only the very pod that was meant is annotated.
//   - An API server that is away, slow or refuses causes delay, and nothing is taken back
//     meanwhile. What it forbids is reported with the permission that is missing
//     ([PermissionError]).
//   - Little memory: the informers have the only copy of what is told. What waits for Next is a set
//     of names, so that a slow reader gets the latest of each pod. Of the types of Kubernetes' API,
//     only the metadata's are linked.
//
// # Permissions
//
//   - list and watch of pods, for the informer of the pods
//   - list and watch of namespaces
//   - patch of pods/status
//
// # Non-goals
//
// The package decides nothing about a pod: the agent does, by its own policy. It neither logs nor
// serves metrics.
package controller
