// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"errors"
	"fmt"
	"path/filepath"
)

// Roots are where the node's files are, as this process sees them. In a container each is a mount of the host's directory. Those that are
// empty are not asked, but for Proc; the more of them there are, the surer a pod is found.
type Roots struct {
	// Proc is a proc file system whose process 1 is the host's: "/proc" when empty. To open other users' namespaces by it takes
	// CAP_SYS_PTRACE.
	Proc string
	// Netns are the directories in which container runtimes mount network namespaces: "/run/netns", and "/run/docker/netns" for Docker. In a
	// container they need mountPropagation HostToContainer, or what is mounted later isn't seen.
	Netns []string
	// Results is libcni's cache of results: "/var/lib/cni/results".
	Results string
	// Journal is the directory in which the plugin records what it applies, as package interception/journal does.
	Journal string
}

// Validate says what is wrong with the paths.
func (r Roots) Validate() error {
	var errs []error
	for _, path := range append([]string{r.Proc, r.Results, r.Journal}, r.Netns...) {
		if path != "" && !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("the path %q is not absolute", path))
		}
	}
	return errors.Join(errs...)
}

func (r Roots) proc() string {
	if r.Proc == "" {
		return "/proc"
	}
	return r.Proc
}
