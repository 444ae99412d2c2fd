// SPDX-License-Identifier: Apache-2.0

package kernel

// WriteSysctlAt is what writes a parameter whose file is at another path than usual.
var WriteSysctlAt = writeSysctl
