// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/interception/podsource"
)

// status is the STATUS command. It succeeds if the plugin could decide about a pod now.
func (c *call) status(ctx context.Context, configuration []byte) (err error) {
	defer c.recoverInto(&err)
	conf, err := c.configure(configuration)
	if c.uninstalled() {
		return nil
	}
	if err != nil || conf.StatusPolicy == pluginconf.StatusOff {
		return err
	}
	now := time.Now()
	mark := conf.readyMark()
	age, marked, markErr := mark.age(now)
	fresh := marked && age < readyFor
	asked := c.usable(ctx, conf, fresh)
	if asked == nil {
		if !fresh {
			markErr = mark.set(now)
		}
		if markErr != nil {
			c.log.Debug("can't note that the plugin is ready", "error", markErr.Error())
		}
		return nil
	}
	if why := conf.silent(asked, age, marked, now); why != "" {
		c.log.Warn("not ready; it is not reported: "+why, "reason", asked.Error())
		return nil
	}
	return &Error{
		Code: types.ErrPluginNotAvailable, Step: "see whether pods can be decided about", Err: asked, Remedy: statusRemedy(asked),
	}
}

// silent says why STATUS keeps silent about a plugin that isn't ready. It is empty if STATUS
// reports it. On a node that isn't ready the kubelet starts no pod, restarts no container and
// renews no token, except for pods in the host's network. So STATUS must not report what only one
// of these can mend. The age is that of the ready mark.
func (c *config) silent(asked error, age time.Duration, marked bool, now time.Time) string {
	strict := c.StatusPolicy == pluginconf.StatusStrict
	if strict && !marked {
		var err error
		if age, err = c.askedFor(now); err != nil {
			return "the plugin can't note since when, so that it might be for good: " + err.Error()
		}
	}
	switch {
	case !strict && !marked:
		return "it never was since the node started, and pods may start, the node agent among them"
	case !strict && needsCredential(asked):
		return "a node agent needs the kubelet for another credential; pods of the mesh fail until then"
	case age >= unreadyFor:
		return "it hasn't been for " + age.Round(time.Second).String() + ", and pods may start again, so that a node agent can"
	}
	return ""
}

// askedFor returns how long ago STATUS was first asked about a plugin that never was ready.
func (c *config) askedFor(now time.Time) (time.Duration, error) {
	first := c.askedMark()
	age, marked, err := first.age(now)
	if err != nil || marked {
		return age, err
	}
	return 0, first.set(now)
}

// needsCredential reports whether the API server can't be asked because of the kubeconfig. The node
// agent writes a new one after the kubelet has mounted a new token or certificate, or has started
// the agent.
func needsCredential(err error) bool {
	both, is := errors.AsType[unusable](err)
	kinds := []error{podsource.ErrKubeconfig, podsource.ErrUntrusted, podsource.ErrUnauthorized, podsource.ErrForbidden}
	return is && slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(both.server, kind) })
}

// usable returns nil if the agent is ready or, if it isn't, the API server answers. With fresh, the
// API server's last answer still counts.
func (c *call) usable(ctx context.Context, conf *config, fresh bool) error {
	status, err := podsource.Agent{RunDir: conf.RunDir, CallTimeout: min(conf.Timeout.Duration(), c.Limits.StatusAgent)}.Status(ctx)
	switch {
	case err == nil && status.Ready:
		c.agent = agentThere
		return nil
	case err == nil:
		c.agent = agentThere
		err = fmt.Errorf("the node agent is not ready: %s", status.Reason)
	}
	if fresh {
		return nil
	}
	server := podsource.APIServer{
		Kubeconfig: conf.Kubeconfig, UserAgent: c.UserAgent, CallTimeout: min(conf.Timeout.Duration(), c.Limits.StatusServer),
	}
	if failure := server.Probe(ctx, cmp.Or(c.Mesh.Policy.AgentNamespace, "default")); failure != nil {
		return unusable{err, failure}
	}
	return nil
}

// unusable is why no source can answer for pods.
type unusable struct{ agent, server error }

func (u unusable) Error() string { return problemOf(u.agent) + "; " + problemOf(u.server) }

// Unwrap returns both.
func (u unusable) Unwrap() []error { return []error{u.agent, u.server} }

func problemOf(err error) string {
	if failure, is := errors.AsType[*podsource.Error](err); is {
		return failure.Problem()
	}
	return err.Error()
}

func statusRemedy(err error) string {
	remedy := "see the node agent's log"
	if both, is := errors.AsType[unusable](err); is {
		for _, one := range []error{both.agent, both.server} {
			if failure, is := errors.AsType[*podsource.Error](one); is {
				remedy += "; " + failure.Remedy()
			}
		}
	}
	return "one of these is enough: " + remedy
}
