// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// keptDirectory is a directory of a node on the machine's own file system: a runtime's overlays
// cannot be on another overlay, and tests read it from outside.
type keptDirectory struct{ name, path string }

func keptDirectories() []keptDirectory {
	return []keptDirectory{
		{"cni-bin", "/opt/cni/bin"},
		{"net.d", "/etc/cni/net.d"},
		{"kubelet", "/var/lib/kubelet"},
		{"containerd", "/var/lib/containerd"},
		{"cni", "/var/lib/cni"},
		{"pods", "/var/log/pods"},
		{"containers", "/var/log/containers"},
	}
}

// setUpNode turns the namespaces of this process into those of a node.
func setUpNode(b boot) error {
	if err := syscall.Sethostname([]byte(b.Name)); err != nil {
		return fmt.Errorf("set the host's name: %w", err)
	}
	for _, step := range []func(boot) error{private, proc, overlays, kept, sys, run, settings, share} {
		if err := step(b); err != nil {
			return err
		}
	}
	return forward()
}

// mount calls mount(2) and adds the directory to its error.
func mount(source, target, kind string, flags uintptr, data string) error {
	if err := syscall.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s (%s %s) at %s: %w", source, kind, data, target, err)
	}
	return nil
}

// private hides the node's mounts from all other namespaces.
func private(boot) error { return mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "") }

// share lets containers see later mounts, if they ask for them.
func share(boot) error { return mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, "") }

// proc mounts a /proc with the node's own processes.
func proc(boot) error { return mount("proc", "/proc", "proc", 0, "") }

// overlays redirect writes below /etc, /opt and /var to the node's directory.
func overlays(b boot) error {
	for _, name := range []string{"etc", "opt", "var"} {
		upper, work := filepath.Join(b.Directory, "overlay", name, "upper"), filepath.Join(b.Directory, "overlay", name, "work")
		for _, directory := range []string{upper, work} {
			if err := os.MkdirAll(directory, 0o755); err != nil {
				return err
			}
		}
		if err := mount("overlay", "/"+name, "overlay", 0, "lowerdir=/"+name+",upperdir="+upper+",workdir="+work); err != nil {
			return fmt.Errorf("%w (the directory must be on a file system that can be an overlay's upper one: set TMPDIR)", err)
		}
	}
	return nil
}

// kept mounts the directories that are not in an overlay.
func kept(b boot) error {
	for _, directory := range keptDirectories() {
		if err := os.MkdirAll(directory.path, 0o755); err != nil {
			return err
		}
		if err := mount(filepath.Join(b.Directory, directory.name), directory.path, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

// sys mounts a /sys with the node's own network devices and the machine's control groups.
func sys(b boot) error {
	groups := filepath.Join(b.Directory, "cgroup")
	if err := os.MkdirAll(groups, 0o755); err != nil {
		return err
	}
	if err := mount("/sys/fs/cgroup", groups, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return err
	}
	if err := mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return err
	}
	return mount(groups, "/sys/fs/cgroup", "", syscall.MS_MOVE, "")
}

// run mounts a /run that is empty after each boot.
func run(boot) error {
	if err := mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	return errors.Join(os.Mkdir("/run/netns", 0o755), os.Mkdir("/run/lock", 0o755), os.Mkdir("/run/containerd", 0o755))
}

// settings shows the kubelet its wanted values of kernel settings, which the whole machine shares.
func settings(b boot) error {
	directory := filepath.Join(b.Directory, "sysctl")
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	for name, value := range map[string]string{
		"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1", "kernel/keys/root_maxkeys": "1000000",
		"kernel/keys/root_maxbytes": "25000000",
	} {
		setting := "/proc/sys/" + name
		if _, err := os.Stat(setting); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		file := filepath.Join(directory, filepath.Base(name))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := mount(file, setting, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}
