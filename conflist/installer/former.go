// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
)

// kubeconfigs returns the paths of all kubeconfigs that may be on the node: the given one, unless
// it is empty, and those in the claim.
func (c *claim) kubeconfigs(path string) []string {
	var all []string
	for _, path := range slices.Concat([]string{path, c.Kubeconfig}, c.Former) {
		if path != "" && !slices.Contains(all, path) {
			all = append(all, path)
		}
	}
	return all
}

// moveKubeconfig records the new path of the kubeconfig, and keeps the old one.
func (c *claim) moveKubeconfig(path string) {
	c.Kubeconfig, c.Former = path, c.kubeconfigs(path)[1:]
}

// removeFormer removes the kubeconfigs that were written with other options, because no
// configuration names them any more. A kubeconfig whose directory is not mounted in this process
// stays in the claim, for a process that can see it.
func (c *config) removeFormer() {
	current, err := c.claims.load()
	if err != nil || len(current.Former) == 0 {
		return
	}
	var gone []string
	var problems []error
	for _, path := range current.Former {
		directory := filepath.Dir(path)
		if _, err := os.Stat(directory); isMissing(err) {
			continue
		}
		c.removeStale(directory, staleAfter)
		if err := c.remove(path, "the plugin's former kubeconfig"); err != nil {
			problems = append(problems, err)
			continue
		}
		gone = append(gone, path)
	}
	if len(gone) > 0 {
		problems = append(problems, c.claims.update(c.observer, func(c *claim) {
			c.Former = slices.DeleteFunc(c.Former, func(path string) bool { return slices.Contains(gone, path) })
		}))
	}
	err = errors.Join(problems...)
	if said := text(err); said != c.former {
		if c.former = said; err != nil {
			c.options.emit(Warning, "a former kubeconfig, with a token in it, can't be removed; remove it", "error", explain(err))
		}
	}
}
