// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"
)

func TestForbiddenErrorNamesSettingAndRemedy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		proc  map[string]string
		root  bool
		wants string
	}{
		"debian": {
			proc:  map[string]string{"sys/kernel/unprivileged_userns_clone": "0\n"},
			wants: "make it: permission denied: kernel.unprivileged_userns_clone is 0; run: sudo sysctl -w kernel.unprivileged_userns_clone=1",
		},
		"no user namespaces": {
			proc:  map[string]string{"sys/user/max_user_namespaces": "0\n", "self/status": "Name:\tdemo\nSeccomp:\t2\n"},
			wants: "make it: permission denied: user.max_user_namespaces is 0; run: sudo sysctl -w user.max_user_namespaces=10000",
		},
		"ubuntu": {
			proc:  map[string]string{"sys/kernel/apparmor_restrict_unprivileged_userns": "1\n", "sys/user/max_user_namespaces": "63000\n"},
			wants: "make it: permission denied: kernel.apparmor_restrict_unprivileged_userns is 1; run: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
		},
		"root needs no user namespace": {
			proc:  map[string]string{"sys/user/max_user_namespaces": "0\n", "sys/user/max_pid_namespaces": "0\n"},
			root:  true,
			wants: "make it: permission denied: user.max_pid_namespaces is 0; run: sudo sysctl -w user.max_pid_namespaces=10000",
		},
		"container": {
			proc:  map[string]string{"self/status": "Name:\tdemo\nSeccomp:\t2\n"},
			wants: "make it: permission denied: a seccomp filter, as containers have, forbids new namespaces; run: docker run --privileged IMAGE ./demo -v",
		},
		"container without filter": {
			proc:  map[string]string{"self/status": "Seccomp:\t0\n", "self/mountinfo": "64 63 0:5 / /proc/kcore rw - tmpfs tmpfs rw\n"},
			wants: "make it: permission denied: parts of /proc are hidden, as in containers, so that no new /proc may be mounted; run: docker run --privileged IMAGE ./demo -v",
		},
		"unknown": {
			proc:  map[string]string{"self/mountinfo": "63 1 0:5 / /proc rw - proc proc rw\n"},
			wants: "make it: permission denied: this user may not make namespaces; run: sudo -E ./demo -v",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proc := fstest.MapFS{}
			for path, text := range test.proc {
				proc[path] = &fstest.MapFile{Data: []byte(text)}
			}
			err := forbiddance{proc: proc, command: []string{"./demo", "-v"}, root: test.root}.explain("make it", fs.ErrPermission)
			if err.Error() != test.wants {
				t.Errorf("got  %s\nwant %s", err, test.wants)
			}
			if !errors.Is(err, fs.ErrPermission) {
				t.Error("the system's answer is lost")
			}
		})
	}
}
