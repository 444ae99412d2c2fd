// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

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
