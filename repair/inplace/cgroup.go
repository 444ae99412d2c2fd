// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"encoding/hex"
	"strings"
)

// membership is whose a process is, by its cgroups.
type membership struct {
	// pod is the UID of the pod; empty when no cgroup names one.
	pod string
	// containers are the names that follow the pod's, or all names where no pod is named: ids of containers, with what runtimes put around them.
	containers []string
	// monitor is true of a runtime's own process that looks after a container, and runs in the host's namespaces.
	monitor bool
}

// membershipOf reads a file /proc/PID/cgroup (cgroups(7)): a line for each hierarchy of version 1, "4:memory:/kubepods/...", and one for
// version 2, "0::/kubepods.slice/...". Below the cgroup of the reader's own namespace a path begins with "/..".
//
// The kubelet names a pod's cgroup "pod<uid>" (driver cgroupfs) or "kubepods-<class>-pod<uid>.slice" with '_' for '-' (driver systemd). Of
// several in one path the outermost is the kubelet's; what is below belongs to the container. Hierarchies that name different pods show that
// somebody has moved the process: then it is nobody's.
func membershipOf(file string) membership {
	var m membership
	for line := range strings.Lines(file) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		_, path, found := strings.Cut(rest, ":")
		if !found {
			continue
		}
		pod, below := splitAtPod(strings.Split(path, "/"))
		switch {
		case pod != "" && m.pod == "":
			m.pod, m.containers = pod, nil
		case pod != "" && pod != m.pod:
			return membership{}
		case pod == "" && m.pod != "":
			continue
		}
		for _, name := range below {
			m.containers = append(m.containers, name)
			m.monitor = m.monitor || strings.Contains(name, "-conmon-") || strings.HasPrefix(name, "conmon-")
		}
	}
	return m
}

// splitAtPod finds the outermost element that names a pod, and what is below it; all elements where none does.
func splitAtPod(elements []string) (pod string, below []string) {
	for i, element := range elements {
		// A runtime with the other driver than the kubelet's takes "<slice>:cri-containerd:<container>" for one name.
		name, behind, _ := strings.Cut(element, ":")
		if pod = podIn(name); pod != "" {
			if behind != "" {
				below = append(below, behind)
			}
			return pod, append(below, elements[i+1:]...)
		}
	}
	return "", elements
}

// podIn is the UID in the name of a pod's cgroup; empty for another's.
func podIn(name string) string {
	name = strings.TrimSuffix(name, ".slice")
	if i := strings.LastIndex(name, "-pod"); i >= 0 {
		name = name[i+1:]
	}
	uid, found := strings.CutPrefix(name, "pod")
	uid = strings.ReplaceAll(uid, "_", "-")
	if !found || !isUID(uid) {
		return ""
	}
	return uid
}

// isUID says whether a text is a UUID (RFC 9562), as the API server makes them, or the hash of a static pod, which is one without dashes.
func isUID(text string) bool {
	digits := strings.ReplaceAll(text, "-", "")
	number, err := hex.DecodeString(digits)
	return err == nil && len(number) == 16 && (text == digits || len(text) == 36) && strings.ToLower(text) == text
}

// names says whether the cgroups name one of the containers, by their ids.
func (m membership) names(ids []string) bool {
	for _, name := range m.containers {
		name = strings.TrimSuffix(name, ".scope")
		for _, id := range ids {
			// "cri-containerd-ID", "crio-ID", "docker-ID", "cri-containerd:ID" or the id alone.
			before, found := strings.CutSuffix(name, id)
			if found && len(id) >= minContainerID && (before == "" || strings.HasSuffix(before, "-") || strings.HasSuffix(before, ":")) {
				return true
			}
		}
	}
	return false
}

// minContainerID is the least length of an id that is not met by chance. Those of today's runtimes have 64 digits.
const minContainerID = 32
