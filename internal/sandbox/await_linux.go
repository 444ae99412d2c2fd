// SPDX-License-Identifier: Apache-2.0

package sandbox

import "context"

// subscribe starts one of package netlink's subscriptions: updates arrive until done is closed or the subscription has failed.
type subscribe[U any] func(updates chan U, done <-chan struct{}, failed func(error)) error

// await waits for the first of a subscription's updates that is ready.
func await[U any](ctx context.Context, start subscribe[U], ready func(U) bool) error {
	updates, failures, done := make(chan U), make(chan error, 1), make(chan struct{})
	defer func() {
		close(done)
		go func() { // the subscription may stand at an update that nobody waits for any more
			for range updates {
			}
		}()
	}()
	err := start(updates, done, func(err error) {
		select {
		case failures <- err:
		default:
		}
	})
	if err != nil {
		close(updates)
		return err
	}
	for {
		select {
		case update, open := <-updates:
			if !open {
				return <-failures
			}
			if ready(update) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
