// SPDX-License-Identifier: Apache-2.0

// Package zdsoracle compares package ambient/zds with Istio's own types of the protocol
// (istio.io/istio/pkg/zdsapi), which the library itself does not require. It has tests only.
package zdsoracle
