// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// removeControlGroups removes the control groups, in all hierarchies, of the containers that nodes had which have ended, by the records of
// their containerd. The pattern (filepath.Match) is of the nodes' directories.
func removeControlGroups(nodes string) error {
	containers, err := filepath.Glob(filepath.Join(nodes, "containerd/io.containerd.grpc.v1.cri/*/*"))
	if err != nil {
		return err
	}
	var failures []error
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

// removeControlGroup removes one with those below it. Only directories can be removed there.
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
