// SPDX-License-Identifier: Apache-2.0

package podnetns

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

// process is a process, by its open directory in proc. The directory stays with this process: after
// its end, reads through it fail with ESRCH, even if another process has its id.
type process struct {
	pid       int
	directory *os.File
}

// maxCgroup bounds a file with cgroups: a line for each of some twenty hierarchies, each path at
// most PATH_MAX.
const maxCgroup = 128 << 10

func openProcess(root string, pid int) (process, error) {
	path := filepath.Join(root, strconv.Itoa(pid))
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return process{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return process{pid, os.NewFile(uintptr(fd), path)}, nil
}

func (p process) close() { _ = p.directory.Close() }

func (p process) String() string { return "process " + strconv.Itoa(p.pid) }

func (p process) open(name string) (*os.File, error) {
	fd, err := unix.Openat(int(p.directory.Fd()), name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	path := filepath.Join(p.directory.Name(), name)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// membership reads the pod and the containers that the process belongs to.
func (p process) membership() (membership, error) {
	file, err := p.open("cgroup")
	if err != nil {
		return membership{}, err
	}
	defer file.Close() //nolint:errcheck // only read from
	data, err := io.ReadAll(io.LimitReader(file, maxCgroup))
	if err != nil {
		return membership{}, fmt.Errorf("read the cgroups of %s: %w", p, err)
	}
	return membershipOf(string(data)), nil
}

// netnsID returns the process's network namespace, without opening it.
func (p process) netnsID() (interception.NetnsID, error) {
	var stat unix.Stat_t
	if err := unix.Fstatat(int(p.directory.Fd()), "ns/net", &stat, 0); err != nil {
		return interception.NetnsID{}, fmt.Errorf("look at the network namespace of %s: %w", p, err)
	}
	return interception.NetnsID{Device: uint64(stat.Dev), Inode: stat.Ino}, nil
}

func (p process) netns(o interception.NetnsOptions) (*interception.Netns, error) {
	file, err := p.open("ns/net")
	if err != nil {
		return nil, err
	}
	return interception.NetnsFromFile(file, o)
}

func processes(root string) ([]int, error) {
	names, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, entry := range names {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
