// SPDX-License-Identifier: Apache-2.0

package pluginconf

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// Paths are where a plugin finds its node agent, unless its configuration says otherwise.
type Paths struct {
	// RunDir is the node agent's run directory, an absolute path: setting cni_agent_run_dir.
	RunDir string
	// Kubeconfig is the file name of the kubeconfig in the run directory. The setting kubeconfig is a
	// whole path.
	Kubeconfig string
}

// PathsOf returns the default paths of the plugin NAME: "/var/run/NAME", and in it
// "NAME-kubeconfig".
func PathsOf(name string) Paths {
	return Paths{RunDir: filepath.Join("/var/run", name), Kubeconfig: name + "-kubeconfig"}
}

// Validate says what is wrong with the paths. An empty one is valid.
func (p Paths) Validate() error {
	var errs []error
	if p.RunDir != "" && !filepath.IsAbs(p.RunDir) {
		errs = append(errs, fmt.Errorf("the run directory is %q, and should be an absolute path", p.RunDir))
	}
	if p.Kubeconfig != "" && filesystem.CheckNewName(p.Kubeconfig) != nil {
		errs = append(errs, fmt.Errorf("the kubeconfig is %q, and should be the name of a file in the run directory, "+
			"without white space", p.Kubeconfig))
	}
	return errors.Join(errs...)
}

// RunDirOf returns the run directory of a configuration, even if that is otherwise invalid.
func (p Paths) RunDirOf(c Config) string {
	if !filepath.IsAbs(c.RunDir) {
		return p.RunDir
	}
	return c.RunDir
}

// Parse reads an entry as [Decode] does, says what is wrong with its values, and fills in defaults.
func (p Paths) Parse(data []byte) (c Config, err error) {
	if c, err = Decode(data); err != nil {
		return c, err
	}
	c.Level, err = ParseLevel(c.LogLevel)
	if err != nil {
		err = fmt.Errorf("plugin_log_level is %w", err)
	}
	err = errors.Join(err, c.validate(), c.FailPolicy.Validate(), c.StatusPolicy.Validate(), c.Timeout.Validate(),
		c.AbandonedAfter.validateAs("abandoned_after"))
	if err != nil {
		return c, valueError{err}
	}
	c.RunDir = p.RunDirOf(c)
	c.Kubeconfig = cmp.Or(c.Kubeconfig, filepath.Join(c.RunDir, p.Kubeconfig))
	return c, nil
}
