// SPDX-License-Identifier: Apache-2.0

// Package apiserver sends requests to the API server as the pod's service account, one at a time.
//
// Goals: little memory, bounded answers, no lasting connection. The credential is read for each
// request, since the kubelet renews it, and is never sent over plain http. Non-goals: watches,
// retries, and knowing what an answer means.
package apiserver
