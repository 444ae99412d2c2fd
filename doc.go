// SPDX-License-Identifier: Apache-2.0

// Package meshcni is the root of the meshcni module; it holds no code. The library is in its rooms.
package meshcni
