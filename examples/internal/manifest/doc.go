// SPDX-License-Identifier: Apache-2.0

// Package manifest finds the pods in Kubernetes manifests, YAML or JSON: Pods as the API server
// prints them, the pod templates of Deployments and other workloads, and Lists of both, in one
// document or in several.
//
// # Goals
//
// A manifest has the same meaning as for kubectl. Objects without a pod are named, so that a caller
// can report what was skipped. Errors name the line.
//
// # Non-goals
//
// It validates no object beyond what it needs, and injects no sidecar into a template.
package manifest
