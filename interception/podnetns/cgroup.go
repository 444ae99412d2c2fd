// SPDX-License-Identifier: Apache-2.0

package podnetns

import (
	"encoding/hex"
	"strings"
)

// membership is the pod and the containers that a process belongs to, by its cgroups.
type membership struct {
	// pod is the UID of the pod; empty if no cgroup names a pod.
	pod string
	// containers are the names below the pod's, or all names if no pod is named: container ids with
	// the runtimes' prefixes and suffixes.
	containers []string
	// monitor is true of a runtime's own process that supervises a container in the host's
	// namespaces.
	monitor bool
}

// membershipOf parses a file /proc/PID/cgroup (cgroups(7)): a line for each hierarchy of version 1,
// "4:memory:/kubepods/...", and one for version 2, "0::/kubepods.slice/...". A path outside the
// cgroup of the reader's own namespace begins with "/..".
//
// The kubelet names a pod's cgroup "pod<uid>" (driver cgroupfs) or
// "kubepods-<class>-pod<uid>.slice" with '_' for '-' (driver systemd). If a path has several such
// names, the outermost is the kubelet's; the rest belongs to the container. Hierarchies that name
// different pods show that the process was moved: then it counts for no pod.
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

// splitAtPod returns the pod of the outermost element that names one, and the elements below it;
// all elements if no element names a pod.
func splitAtPod(elements []string) (pod string, below []string) {
	for i, element := range elements {
		// A runtime with another cgroup driver than the kubelet's uses
		// "<slice>:cri-containerd:<container>" as one name.
		name, rest, _ := strings.Cut(element, ":")
		if pod = podIn(name); pod != "" {
			if rest != "" {
				below = append(below, rest)
			}
			return pod, append(below, elements[i+1:]...)
		}
	}
	return "", elements
}

// podIn returns the UID in the name of a pod's cgroup; empty for any other cgroup.
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

// isUID reports whether a text is a UUID (RFC 9562), as the API server makes them, or the hash of a
// static pod, which is a UUID without dashes.
func isUID(text string) bool {
	digits := strings.ReplaceAll(text, "-", "")
	number, err := hex.DecodeString(digits)
	return err == nil && len(number) == 16 && (text == digits || len(text) == 36) && strings.ToLower(text) == text
}

// names reports whether the cgroups name one of the containers, by their ids.
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

// isOf reports whether the process is the pod's.
func (m membership) isOf(pod Pod) bool {
	return m.pod != "" && m.pod == pod.UID || m.pod == "" && m.names(pod.Containers)
}

// minContainerID is long enough that no other name matches an id by chance. Today's runtimes use 64
// digits.
const minContainerID = 32
