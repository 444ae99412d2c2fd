// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"io/fs"
	"strings"
)

// ForbiddenError means that the system does not let this user create a sandbox: at which step,
// because of which setting, and which command helps.
type ForbiddenError struct {
	// Step is the step that failed, such as "create namespaces".
	Step string
	// Setting is the cause, as the administrator knows it: a sysctl with its value, or a
	// container's filter.
	Setting string
	// Remedy is the one command that helps.
	Remedy string
	// Err is the system's error.
	Err error
}

// Error returns step, system error, setting and remedy.
func (e *ForbiddenError) Error() string {
	return fmt.Sprintf("%s: %v: %s; run: %s", e.Step, e.Err, e.Setting, e.Remedy)
}

// Unwrap returns the system's error.
func (e *ForbiddenError) Unwrap() error { return e.Err }

// forbiddance searches for the setting that forbids a sandbox.
type forbiddance struct {
	// proc is the file system at /proc.
	proc fs.FS
	// command is this program and its arguments.
	command []string
	// root reports whether no user namespace was needed, so that settings about those do not
	// matter.
	root bool
}

// sysctl is a setting that can forbid a sandbox.
type sysctl struct {
	name, forbids, allow string
	// user reports whether the setting concerns user namespaces only.
	user bool
}

// explain finds the setting that made a step fail. It checks the settings in the order of the
// kernel.
func (f forbiddance) explain(step string, err error) *ForbiddenError {
	forbidden := &ForbiddenError{Step: step, Err: err}
	for _, s := range []sysctl{
		{"kernel.unprivileged_userns_clone", "0", "1", true},             // Debian and derivatives
		{"user.max_user_namespaces", "0", "10000", true},                 // namespaces(7)
		{"kernel.apparmor_restrict_unprivileged_userns", "1", "0", true}, // Ubuntu since 23.10
		{"user.max_mnt_namespaces", "0", "10000", false},
		{"user.max_net_namespaces", "0", "10000", false},
		{"user.max_pid_namespaces", "0", "10000", false},
	} {
		if s.user && f.root || f.sysctl(s.name) != s.forbids {
			continue
		}
		forbidden.Setting = fmt.Sprintf("%s is %s", s.name, s.forbids)
		forbidden.Remedy = fmt.Sprintf("sudo sysctl -w %s=%s", s.name, s.allow)
		return forbidden
	}
	switch {
	case f.status("Seccomp") == "2":
		forbidden.Setting = "a seccomp filter, as containers have, forbids new namespaces"
		forbidden.Remedy = "docker run --privileged IMAGE " + strings.Join(f.command, " ")
	case f.procIsMasked():
		forbidden.Setting = "parts of /proc are hidden, as in containers, so that no new /proc may be mounted"
		forbidden.Remedy = "docker run --privileged IMAGE " + strings.Join(f.command, " ")
	default:
		forbidden.Setting = "this user may not make namespaces"
		forbidden.Remedy = "sudo -E " + strings.Join(f.command, " ")
	}
	return forbidden
}

// sysctl returns a setting's value, empty if this kernel does not have it.
func (f forbiddance) sysctl(name string) string {
	value, err := fs.ReadFile(f.proc, "sys/"+strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(value))
}

// status is a field of proc_pid_status(5).
func (f forbiddance) status(field string) string {
	text, err := fs.ReadFile(f.proc, "self/status")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); name == field {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// procIsMasked looks for mounts below /proc: the fifth field of a line of proc_pid_mountinfo(5).
func (f forbiddance) procIsMasked() bool {
	text, err := fs.ReadFile(f.proc, "self/mountinfo")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], "/proc/") {
			return true
		}
	}
	return false
}
