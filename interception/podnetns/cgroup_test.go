// SPDX-License-Identifier: Apache-2.0

package podnetns_test

import (
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
)

const uid, otherUID, container = fakenode.UID, fakenode.OtherUID, fakenode.Container

// TestMembership parses the cgroups of all layouts.
func TestMembership(t *testing.T) {
	t.Parallel()
	underscored := strings.ReplaceAll(uid, "-", "_") // as the systemd driver writes it
	systemd := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + underscored + ".slice/"
	for name, test := range map[string]struct {
		file, pod string
		names     bool // the container
		monitor   bool
	}{
		"cgroupfs, version 1": {
			"11:pids:/kubepods/besteffort/pod" + uid + "/" + container + "\n1:name=systemd:/kubepods/besteffort/pod" + uid + "/" + container + "\n0::/\n",
			uid, true, false,
		},
		"a hierarchy that isn't the kubelet's": {"3:rdma:/\n2:memory:/kubepods/pod" + uid + "/" + container + "\n", uid, true, false},
		"systemd, containerd":                  {"0::" + systemd + "cri-containerd-" + container + ".scope\n", uid, true, false},
		"systemd, CRI-O":                       {"0::" + systemd + "crio-" + container + ".scope/container\n", uid, true, false},
		"systemd, guaranteed":                  {"0::/kubepods.slice/kubepods-pod" + underscored + ".slice/docker-" + container + ".scope\n", uid, true, false},
		"cgroupfs, CRI-O":                      {"0::/kubepods/burstable/pod" + uid + "/crio-" + container + "\n", uid, true, false},
		"CRI-O's monitor":                      {"0::" + systemd + "crio-conmon-" + container + ".scope\n", uid, true, true},
		"a reader with cgroups of its own":     {"0::/../../kubepods-burstable-pod" + underscored + ".slice/cri-containerd-" + container + ".scope\n", uid, true, false},
		"and with the driver cgroupfs":         {"0::/../../pod" + uid + "/" + container + "\n", uid, true, false},
		"drivers that differ":                  {"0::/system.slice/containerd.service/kubepods-burstable-pod" + underscored + ".slice:cri-containerd:" + container + "\n", uid, true, false},
		"a static pod":                         {"0::/kubepods/burstable/pod" + strings.Repeat("0a", 16) + "/" + container + "\n", strings.Repeat("0a", 16), true, false},
		"no pod":                               {"0::/system.slice/docker-" + container + ".scope\n", "", true, false},
		"another container":                    {"0::/system.slice/docker-a" + container + ".scope\n", "", false, false},
		"nobody's":                             {"0::/user.slice/user-0.slice/session-1.scope\n", "", false, false},
		"no UID":                               {"0::/machine.slice/libpod-podman.scope/pod-one/poddy\n", "", false, false},
		"a pod within a pod":                   {"0::/kubepods/pod" + otherUID + "/" + container + "/kubepods/pod" + uid + "/x\n", otherUID, true, false},
		"moved in one hierarchy":               {"2:memory:/kubepods/pod" + uid + "/" + container + "\n1:pids:/kubepods/pod" + otherUID + "/" + container + "\n", "", false, false},
		"nothing":                              {"", "", false, false},
		"no cgroups":                           {"kubepods/pod" + uid, "", false, false},
	} {
		pod, names, monitor := podnetns.Membership(test.file, container)
		if pod != test.pod || names != test.names || monitor != test.monitor {
			t.Errorf("%s: pod %q, container %t, monitor %t; want %q, %t, %t", name, pod, names, monitor, test.pod, test.names, test.monitor)
		}
	}
	if _, names, _ := podnetns.Membership("0::/docker/abc\n", "abc"); names {
		t.Error("an id of three letters is met by chance")
	}
}
