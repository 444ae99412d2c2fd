// SPDX-License-Identifier: Apache-2.0

// Package health answers /healthz and /readyz.
//
// Healthy means that a restart of the process would not help: /healthz fails only when a part says that nothing else does. Ready means
// that every part has said so, and that those which can be asked say it again when /readyz is; while one hasn't, /readyz answers 503 and
// names it and its reason. Nothing is asked at other times. Work that a part does while what it
// guards still stands, such as taking over a rotated token, changes nothing here. With ?verbose both answer with JSON about all parts.
//
// Non-goals: TLS and authentication. Reasons name files and settings, never what is in them.
package health
