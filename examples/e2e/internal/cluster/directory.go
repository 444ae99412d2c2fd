// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// prefix begins the name of a cluster's directory.
const prefix = "meshcni-e2e-"

// NewDirectory makes a directory for a cluster below another one, on a file system that can be the
// upper one of an overlay. The caller keeps the returned lock open for the life of the cluster.
func NewDirectory(below string) (directory string, lock *os.File, err error) {
	directory, err = os.MkdirTemp(below, prefix)
	if err != nil {
		return "", nil, err
	}
	if err := os.Chmod(directory, 0o755); err != nil {
		return "", nil, err
	}
	lock, err = lockDirectory(directory)
	return directory, lock, err
}

// Sweep removes what killed runs have left: directories without a locking process, and control
// groups. It returns what it removed. Directories with the logs of a failure are left alone
// ([Keep]).
func Sweep(below string) (removed []string, err error) {
	directories, err := filepath.Glob(filepath.Join(below, prefix+"*"))
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, directory := range directories {
		if _, err := os.Stat(filepath.Join(directory, keepName)); err == nil {
			continue
		}
		lock, err := lockDirectory(directory)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			failures = append(failures, err)
			continue
		}
		failures = append(failures, removeControlGroups(filepath.Join(directory, "*")), os.RemoveAll(directory), lock.Close())
		removed = append(removed, directory)
	}
	return removed, errors.Join(failures...)
}

// keepName is a file that makes Sweep leave its directory alone.
const keepName = "keep"

// Keep removes all but the logs from the directory of an ended cluster. From now on the developer
// has to remove the directory.
func Keep(directory string) error {
	if err := os.WriteFile(filepath.Join(directory, keepName), nil, 0o644); err != nil {
		return err
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	failures := []error{os.Chmod(directory, 0o755)}
	for _, entry := range entries {
		if entry.Name() == keepName || entry.Name() == "logs" {
			continue
		}
		pods := filepath.Join(directory, entry.Name(), "pods") // a node's
		if _, err := os.Stat(pods); err == nil {
			failures = append(failures, os.Rename(pods, filepath.Join(directory, "logs", entry.Name()+"-pods")))
		}
		failures = append(failures, os.RemoveAll(filepath.Join(directory, entry.Name())))
	}
	return errors.Join(failures...)
}

// lockDirectory locks a directory, or fails with EWOULDBLOCK.
func lockDirectory(directory string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(directory, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", directory, err)
	}
	return file, nil
}
