// SPDX-License-Identifier: Apache-2.0

// Package health answers /healthz and /readyz.
//
// Healthy means that a restart of the process would not help: /healthz fails only if a part reports
// that nothing else helps. Ready means that every part has reported that it is, and that the parts
// with a check confirm it when /readyz is requested; otherwise /readyz answers 503 with the name
// and reason of each part that is not ready. No checks run at other times. Work that a part does
// while what it guards is still in place, such as taking over a rotated token, does not change
// readiness. With ?verbose both answer with JSON about all parts.
//
// Non-goals: TLS and authentication. Reasons name files and settings, never their content.
package health
