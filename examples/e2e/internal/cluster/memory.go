// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// controlGroups is the parent of all nodes' control groups.
const controlGroups = "/sys/fs/cgroup"

// Memory is the state of a container's memory control group, in bytes. It counts all processes of
// the container, and the pages of files that they read and wrote. The kernel would reclaim those
// pages before it kills a process, so a limit that covers them is enough.
type Memory struct {
	// Peak is the container's highest use.
	Peak int64
	// Limit is the container's limit; 0 if it has no limit.
	Limit int64
	// Killed counts processes that the kernel killed at the limit.
	Killed int64
}

// Memory reads the memory control group of a process on the node. pid is the process's id on the
// node.
func (n *Node) Memory(pid string) (Memory, error) {
	text, err := os.ReadFile(n.Path("/proc/" + pid + "/cgroup"))
	if err != nil {
		return Memory{}, err
	}
	directory, err := memoryGroup(string(text))
	if err != nil {
		return Memory{}, fmt.Errorf("process %s on %s: %w", pid, n.Name, err)
	}
	return readMemory(directory)
}

// memoryGroup returns the directory of the control group that counts a process's memory. The text
// is that of /proc/PID/cgroup. If version 1 counts memory, version 2 does not.
func memoryGroup(text string) (string, error) {
	unified := ""
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(fields) < 3:
		case slices.Contains(strings.Split(fields[1], ","), "memory"):
			return filepath.Join(controlGroups, "memory", fields[2]), nil
		case fields[0] == "0":
			unified = filepath.Join(controlGroups, fields[2])
		}
	}
	if unified == "" {
		return "", fmt.Errorf("no control group counts its memory: %q", text)
	}
	return unified, nil
}

// readMemory reads the files of a control group of either version.
func readMemory(directory string) (Memory, error) {
	limit, peak, events := "memory.max", "memory.peak", "memory.events"
	_, err := os.Stat(filepath.Join(directory, "memory.limit_in_bytes"))
	if err == nil {
		limit, peak, events = "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"
	}
	var m Memory
	var failures [3]error
	m.Limit, failures[0] = readBytes(filepath.Join(directory, limit))
	m.Peak, failures[1] = readBytes(filepath.Join(directory, peak))
	if errors.Is(failures[1], fs.ErrNotExist) { // kernels before 5.19 have no memory.peak
		m.Peak, failures[1] = readBytes(filepath.Join(directory, "memory.current"))
	}
	m.Killed, failures[2] = readEvent(filepath.Join(directory, events), "oom_kill")
	return m, errors.Join(failures[:]...)
}

// readBytes reads a file that holds one number; it returns 0 for "no limit".
func readBytes(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	word := strings.TrimSpace(string(text))
	if word == "max" {
		return 0, nil
	}
	number, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	const unlimited = 1 << 62 // version 1 writes its largest number, in whole pages
	if number >= unlimited {
		return 0, nil
	}
	return number, nil
}

// readEvent reads a number from a file whose lines hold a name and a number.
func readEvent(path, name string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s: %q", path, name, text)
}

// Most returns the larger of each pair of numbers.
func (m Memory) Most(other Memory) Memory {
	return Memory{Peak: max(m.Peak, other.Peak), Limit: max(m.Limit, other.Limit), Killed: max(m.Killed, other.Killed)}
}

// Enough returns an error if the limit is not enough: a fifth of it must remain free.
func (m Memory) Enough() error {
	const percent = 80
	switch {
	case m.Peak == 0:
		return errors.New("its memory was never measured")
	case m.Limit == 0:
		return errors.New("it has no memory limit")
	case m.Killed > 0:
		return fmt.Errorf("the kernel killed %d of its processes for want of memory: %s", m.Killed, m)
	case m.Peak > m.Limit/100*percent:
		return fmt.Errorf("it took more than %d %% of its memory limit: %s", percent, m)
	}
	return nil
}

func (m Memory) String() string {
	const mebibyte = 1 << 20
	if m.Limit == 0 {
		return fmt.Sprintf("at most %.1f MiB, without a limit", float64(m.Peak)/mebibyte)
	}
	return fmt.Sprintf("at most %.1f MiB of %.0f MiB", float64(m.Peak)/mebibyte, float64(m.Limit)/mebibyte)
}

// removeControlGroups removes, in all hierarchies, the control groups of ended containers, found by
// the records of the nodes' containerd. The pattern (filepath.Match) matches the nodes'
// directories.
func removeControlGroups(nodes string) error {
	var containers []string
	var failures []error
	// A task's directory exists before its control group, and until after its end.
	for _, kept := range []string{"io.containerd.grpc.v1.cri/*/*", "io.containerd.runtime.v2.task/k8s.io/*"} {
		found, err := filepath.Glob(filepath.Join(nodes, "containerd", kept))
		containers, failures = append(containers, found...), append(failures, err)
	}
	for _, container := range containers {
		for _, pattern := range []string{"/sys/fs/cgroup/*/k8s.io/", "/sys/fs/cgroup/k8s.io/"} {
			groups, err := filepath.Glob(pattern + filepath.Base(container))
			failures = append(failures, err)
			for _, group := range groups {
				failures = append(failures, removeControlGroup(group))
			}
		}
	}
	return errors.Join(failures...)
}

// removeControlGroup removes a control group with those below it. Only directories can be removed
// in that file system.
func removeControlGroup(root string) error {
	var groups []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			groups = append(groups, path)
		}
		return nil
	})
	failures := []error{err}
	for _, group := range slices.Backward(groups) {
		if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}
