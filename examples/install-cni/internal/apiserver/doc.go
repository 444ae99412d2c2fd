// SPDX-License-Identifier: Apache-2.0

// Package apiserver asks the API server as the pod's service account, one request at a time.
//
// Goals: little memory, bounded answers, no connection that stays; the credential is read for each request, since the kubelet renews it, and
// goes to nobody over plain http. Non-goals: watches, retries, and knowing what an answer means.
package apiserver
