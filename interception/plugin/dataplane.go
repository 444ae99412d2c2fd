// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
)

// backend is the part of a dataplane that the plugin uses; ApplyBy names the candidate that applied
// the plan.
type backend interface {
	ApplyBy(ctx context.Context, ns *interception.Netns, p *interception.Plan) (name string, err error)
	Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error)
}

// only is the backend of a build with a single dataplane.
type only struct {
	interception.Dataplane
	name string
}

// ApplyBy is the dataplane's Apply.
func (o only) ApplyBy(ctx context.Context, ns *interception.Netns, p *interception.Plan) (string, error) {
	return o.name, o.Apply(ctx, ns, p)
}

// backend returns the dataplane for a setting, which is one of [pluginconf.Dataplanes].
func (o *Options) backend(setting string) (backend, error) {
	linked, err := o.Dataplanes()
	if err != nil {
		return nil, err
	}
	if err := checkLinked(linked); err != nil {
		return nil, &Error{
			Code: types.ErrInternal, Step: "take a dataplane", Err: err,
			Remedy: "this is a defect of " + o.Name + ", in the function Dataplanes of its options: please report it",
		}
	}
	candidates := slices.Clone(linked)
	if setting != pluginconf.Auto {
		candidates = slices.DeleteFunc(candidates, func(c choice.Candidate) bool { return c.Name != setting })
	}
	switch {
	case len(candidates) == 0:
		return nil, &absentError{o, setting, linked}
	case len(linked) == 1:
		return only{candidates[0].Dataplane, candidates[0].Name}, nil
	default:
		return choice.New(candidates...)
	}
}

// checkLinked says why the result of [Options].Dataplanes cannot be used.
func checkLinked(linked []choice.Candidate) error {
	if len(linked) == 0 {
		return errors.New("no dataplane is linked into this build")
	}
	for _, c := range linked {
		if c.Dataplane == nil {
			return fmt.Errorf("the dataplane %q is nil", c.Name)
		}
	}
	return nil
}

// absentError means that a setting names a dataplane that this build lacks.
type absentError struct {
	of      *Options
	setting string
	linked  []choice.Candidate
}

func (e *absentError) Error() string {
	text := fmt.Sprintf("this build of %s has no %s", e.of.Name, e.setting)
	if e.of.OtherBuild.Name != "" {
		text += ": it takes " + e.of.OtherBuild.Name
	}
	return text
}

func (e *absentError) remedy() string {
	text := "set dataplane to " + pluginconf.Auto
	if name := e.linked[0].Name; slices.Contains(pluginconf.Dataplanes(), name) {
		text = "set dataplane to " + name
	}
	if e.of.OtherBuild.Remedy != "" {
		text = e.of.OtherBuild.Remedy + ", or " + text
	}
	return text
}
