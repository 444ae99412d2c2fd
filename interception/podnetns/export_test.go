// SPDX-License-Identifier: Apache-2.0

package podnetns

// Membership returns what cgroups show: the pod, whether they name the container, and whether it is
// a runtime's monitor.
func Membership(file, container string) (pod string, names, monitor bool) {
	m := membershipOf(file)
	return m.pod, m.names([]string{container}), m.monitor
}
