// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// errMapping means that newuidmap or newgidmap refused, so that a single id is still worth trying.
var errMapping = errors.New("subordinate ids are not usable")

// mostSubordinateIDs and the caller's own id make up the usual 16 bits.
const mostSubordinateIDs = 65535

// idMapper gives a process in a new user namespace its ids (user_namespaces(7)).
type idMapper func(ctx context.Context, pid int) error

// singleID maps the caller to 0. A caller without privileges has to give up setgroups(2) first.
func singleID(_ context.Context, pid int) error {
	for _, file := range []struct{ name, text string }{
		{"setgroups", "deny"},
		{"uid_map", fmt.Sprintf("0 %d 1", os.Geteuid())},
		{"gid_map", fmt.Sprintf("0 %d 1", os.Getegid())},
	} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, file.name), []byte(file.text), 0); err != nil {
			return err
		}
	}
	return nil
}

// subordinateIDs maps the caller to 0, and 1 onwards to the caller's subordinate ids. Without them
// it returns the reason.
func subordinateIDs() (mapper idMapper, reason string) {
	uid := strconv.Itoa(os.Geteuid())
	names := []string{uid}
	if u, err := user.LookupId(uid); err == nil {
		names = append(names, u.Username)
	}
	var arguments [2][]string
	for i, of := range []struct {
		program, file string
		own           int
	}{
		{"newuidmap", "/etc/subuid", os.Geteuid()},
		{"newgidmap", "/etc/subgid", os.Getegid()},
	} {
		program, err := exec.LookPath(of.program)
		if err != nil {
			return nil, fmt.Sprintf("%s is not installed; run: sudo apt-get install uidmap", of.program)
		}
		text, err := os.ReadFile(of.file)
		if err != nil {
			return nil, fmt.Sprintf("subordinate ids: %v", err)
		}
		first, count := subordinateRange(string(text), names)
		if count == 0 {
			return nil, fmt.Sprintf("%s has no range for %s; run: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s",
				of.file, strings.Join(names, " or "), names[len(names)-1])
		}
		arguments[i] = []string{
			program,
			"0", strconv.Itoa(of.own), "1",
			"1", strconv.FormatUint(first, 10), strconv.FormatUint(min(count, mostSubordinateIDs), 10),
		}
	}
	return func(ctx context.Context, pid int) error {
		for _, a := range arguments {
			command := exec.CommandContext(ctx, a[0], append([]string{strconv.Itoa(pid)}, a[1:]...)...)
			if output, err := command.CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s: %w: %s", errMapping, a[0], err, strings.TrimSpace(string(output)))
			}
		}
		return nil
	}, ""
}

// subordinateRange returns the largest range for one of the names in a text of the form of
// subuid(5), lines of "name:first:count". Like newuidmap, it skips malformed lines.
func subordinateRange(text string, names []string) (first, count uint64) {
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 3 {
			continue
		}
		f, errFirst := strconv.ParseUint(fields[1], 10, 32)
		c, errCount := strconv.ParseUint(fields[2], 10, 32)
		if errFirst != nil || errCount != nil {
			continue
		}
		for _, name := range names {
			if fields[0] == name && c > count {
				first, count = f, c
			}
		}
	}
	return first, count
}

// ownIDs maps the ids that this process has, by its uid_map or gid_map, to themselves.
func ownIDs(path string) ([]syscall.SysProcIDMap, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var ids []syscall.SysProcIDMap
	for line := range strings.Lines(string(text)) {
		var inside, outside, count int
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		ids = append(ids, syscall.SysProcIDMap{ContainerID: inside, HostID: inside, Size: count})
	}
	return ids, nil
}
