// SPDX-License-Identifier: Apache-2.0

// Package sidecar decides what to capture for a pod's sidecar proxy, and makes the plan for it:
//
//	Pod --Dialect.Parse--> Redirect --Plan--> interception.Plan
//	                           (interception.Facts)
//
// The types:
//
//   - [Mesh] is the entry point. It decides whether and why a pod is captured ([Mesh.Decide]) and
//     plans for the pod ([Mesh.Plan]). All programs of a node use the same Mesh.
//   - [Dialect] is a mesh's vocabulary as data: the meaning of annotations, environment variables
//     and ids. Its Parse method returns a Redirect.
//   - [Redirect] is the mesh-neutral intent: what to capture, and the proxy's identities.
//
// The function [Plan] turns a Redirect into an [interception.Plan] and documents the order in which
// its rules decide.
//
// # Goals
//
// Bad input is an error that names key, value and reason; it never becomes a silently uncaptured
// pod. Valid input without an effect is an [interception.Warning].
//
// # Non-goals
//
// This package imports package interception and the standard library only, touches no kernel and
// logs nothing. It prefers no mesh: Istio's vocabulary is a table ([Istio]), and another mesh
// provides its own.
package sidecar
