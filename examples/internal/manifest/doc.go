// SPDX-License-Identifier: Apache-2.0

// Package manifest finds the pods in Kubernetes manifests, YAML or JSON: Pods as the API server
// prints them, the pod templates of Deployments and other workloads, and Lists of both, in one
// document or in several.
//
// # Goals
//
// A manifest means here what it means to kubectl. What has no pod is named, so that a caller can
// say what was passed over. Errors name the line.
//
// # Non-goals
//
// It validates no object beyond what it needs, and injects no sidecar into a template.
package manifest
