def test_world(world):
    w = world.acme.api.iam("session/whoami").data
    print(w)
    print(world.ann.api.iam("principals/list").body)
