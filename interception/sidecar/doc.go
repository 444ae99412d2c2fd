// SPDX-License-Identifier: Apache-2.0

// Package sidecar says which traffic of a pod is captured for the proxy that runs in it, and makes the plan that does so:
//
//		Pod --Dialect.Parse--> Redirect --Plan--> interception.Plan
//		                           (interception.Facts)
//
//	  - A [Mesh] is the way in: it decides whether a pod is captured, and why ([Mesh.Decide]), and plans for it ([Mesh.Plan]). Each program
//	    of a node has the same one.
//	  - A [Dialect] is a mesh's vocabulary as data: which annotations, environment and ids mean what. Its Parse makes
//	  - a [Redirect], the mesh-neutral intent: which ports and prefixes are captured, and which identities are the proxy's.
//	  - [Plan] makes an [interception.Plan] of it, and documents the order in which its rules decide.
//
// # Goals
//
// Bad input is an error that names key, value and reason; it never becomes a silently uncaptured pod. What is understood and has no effect
// is an [interception.Warning].
//
// # Non-goals
//
// This package imports package interception and the standard library only, touches no kernel and logs nothing. It does not know one mesh
// better than another: Istio's words are a table ([Istio]), and another mesh brings its own.
package sidecar
